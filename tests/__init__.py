"""Tests of commprof; the folders mirror the package, ``cases`` holds the catalogue of public bug reports."""
