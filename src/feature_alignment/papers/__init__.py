"""One folder for each paper, with everything that is only that paper's."""
