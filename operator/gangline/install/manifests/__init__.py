"""The objects of an installation as trees with open values (`objects`), and what is made of them: objects, a chart, pages."""
