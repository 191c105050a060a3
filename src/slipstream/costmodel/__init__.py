"""What speculation costs and gains on given hardware: step times, memory, speedup over batch size, crossovers.

A Python API of its own: it needs numpy and `slipstream.core`, and nothing of the gateway. Nothing is imported here, so
that asking for the published script costs no numpy. From the bottom up:

- `model`, `hardware`, `engine`: what is known of each. `catalogue` has those that ship; `huggingface` reads a
  ``config.json``, `gguf_model` a GGUF file.
- `roofline`: seconds of a pass, from bytes and arithmetic. `speculator`: what drafts, and what drafting costs. `arms`:
  the steps of both arms. `fit`: a computed curve corrected by a few measured points.
- `profiles`: step times that were fitted or measured, refused without their provenance. `costs`: the protocol that
  these and the roofline share.
- `acceptance`: tau over K. `curve`: the table, the crossovers, the best K. `published`: the second article's script.
- `memory`: admitted concurrency. `price`: tokens per GPU, and what a million costs.
- `mixture`: categories, several speculators, heterogeneous batches.
- `tokenizers`, `gguf`, `qualify`: whether a draft model suits a target. `engine_settings`: engines' own configuration.
- `validation`: the model beside published measurements.

Impossible input raises `ImpossibleInput` with a sentence that says what is wrong; results are finite, never NaN.
"""
