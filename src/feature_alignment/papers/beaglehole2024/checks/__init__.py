"""The mathematics behind the paper's statements, checked in numbers."""
