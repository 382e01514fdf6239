"""Pages: single HTML files that need nothing but a browser."""
