"""`python -m feature_alignment`: single experiments and figures without Snakemake, and help."""

from feature_alignment.pipeline.command_line import main

if __name__ == "__main__":
    main()
