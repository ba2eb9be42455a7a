"""Answer assistants: a server of the Model Context Protocol, whose tools are the commands."""
