"""NormGrad and the receptive fields that it sums over."""
