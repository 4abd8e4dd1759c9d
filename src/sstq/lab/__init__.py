"""The workshop around the library: the paper again, data sets, simulated training, speed and the demo."""
