"""Networks whose initial weights come from an explicit random generator."""
