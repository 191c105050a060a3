"""From a scenario's file to what is simulated: step times looked up, memory counted, traces read.

Everything that makes a scenario impossible is found here, before the first event, and is said with its place in the
file. A scenario can be sent to another process.
"""

from slipstream.scenarios.reading import read_scenario

__all__ = ["read_scenario"]
