"""The pictures of the dashboard in docs/pictures/: a local cluster that is worth a look, and a browser that takes them."""
