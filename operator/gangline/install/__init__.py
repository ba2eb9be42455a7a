"""What an installation of Gangline consists of, and how a cluster gets it and is rid of it.

In: values, chosen by whoever installs (`manifests.values`). Out: objects for `gangline admin install` and kustomize, templates
for Helm (`manifests`), the rights of operator and webhooks (`rights`); and the steps that bring a cluster to a version
(`installing`, `rollout`), or back to none (`removal`). Objects are named in `manifests.objects`, and nowhere else.
"""
