"""Reading and writing files safely: atomic writes, locks, and strict JSON and NumPy readers."""
