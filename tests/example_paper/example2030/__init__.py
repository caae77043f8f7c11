"""A made-up paper: the smallest folder that is a paper."""
