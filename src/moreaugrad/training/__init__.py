"""Training of the classifiers of the package and of mask networks."""
