"""Claims: the papers' numbers and statements, and whether the figures' tables support them."""
