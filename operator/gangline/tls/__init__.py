"""TLS for our servers: self-issued certificates, and a context whose certificate can be changed while serving."""
