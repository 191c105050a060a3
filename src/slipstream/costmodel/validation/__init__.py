"""The model beside published measurements: ``python -m slipstream.costmodel.validation`` writes the page about it."""
