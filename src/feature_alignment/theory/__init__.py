"""What the papers derive in closed form, and the numerical checks of it."""
