"""The quantities of all three papers, measured on the same trainings."""
