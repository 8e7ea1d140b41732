"""Results on their way out: explanations as files, maps as pictures. Computes no map."""
