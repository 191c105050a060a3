"""The simulator: a fleet of model engines under the gateway's own policy, in virtual time."""
