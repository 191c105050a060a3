"""What operators and Prometheus look at. It imports nothing of the data plane and can not change the fleet."""

from slipstream.admin.app import Admin, serve_admin

__all__ = ["Admin", "serve_admin"]
