"""The agent beside one engine: it starts, watches, switches and stops it, and says how it does."""
