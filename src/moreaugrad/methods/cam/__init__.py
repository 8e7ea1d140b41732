"""Class activation maps, and how maps are read at the layers of a model."""
