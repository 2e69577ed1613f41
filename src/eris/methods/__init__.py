"""Published methods, one a file, each a composition of the same parts."""
