"""The catalogue of public bug reports, one module per group; every test names its case."""
