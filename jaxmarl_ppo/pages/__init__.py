"""Pages to look at: single files of HTML that need nothing but a browser."""
