"""Claims: the papers' numbers and statements, and whether the figure tables bear them out."""
