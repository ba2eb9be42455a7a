/** The namespace that an address asks for, as far as the session may see it; "" is the whole cluster. */
export function namespaceOf(params: URLSearchParams, session: { all: boolean; namespace: string; namespaces: string[] }): string {
  const asked = params.get('ns')
  if (asked !== null && (asked !== '' || session.all)) return asked
  return session.all ? '' : session.namespace || (session.namespaces[0] ?? '')
}
