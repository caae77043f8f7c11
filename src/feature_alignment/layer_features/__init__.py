"""Neural feature matrices, average gradient outer products and their correlations."""
