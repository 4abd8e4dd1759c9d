"""ProjUnit: PrivUnitG after a public random projection."""
