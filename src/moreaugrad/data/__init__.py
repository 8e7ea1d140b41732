"""Images on their way in. Knows no model: the model's own `preprocess` makes the tensor."""
