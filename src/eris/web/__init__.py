"""Pages for people: what is stored about runs and federations, as one file of HTML."""
