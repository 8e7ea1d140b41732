"""FGVis and the guarded copies of a model that defend it."""
