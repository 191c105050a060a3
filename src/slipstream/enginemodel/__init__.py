"""A continuous-batching engine with speculation, step by step, in whatever time it is given.

Written once, run twice: in virtual time by `sim`, in real time behind `slipstream emulate`. Nothing here knows a clock
or an event loop: a step is begun at a time and says when it ends.
"""
