"""What arrives: when, how long, of which category. One `Plan` serves the simulator and the bench."""
