"""Where speculation stops paying on two live engines, measured: step times, acceptance, and a profile of both."""
