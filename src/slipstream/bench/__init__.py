"""Load on a server that others run, and what it is worth to those who wait: goodput, latencies, the highest rate."""
