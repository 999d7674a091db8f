"""One builder a family: plain functions from sizes, in our names, to a Spec. Readers and presets call the same ones."""
