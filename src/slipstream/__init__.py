"""Slipstream decides where and when speculative decoding pays in a fleet of LLM inference engines."""

__version__ = "0.1.0"

__all__ = ["__version__"]
