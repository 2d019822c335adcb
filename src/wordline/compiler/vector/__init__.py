"""Code for the vector unit: passes, generated from expression graphs or written by hand."""
