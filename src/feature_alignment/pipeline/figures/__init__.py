"""How figures are made: tables from runs, pictures from tables, in one style."""
