/** Who is signed in, and what that person may do. */
import { useSyncExternalStore } from 'react'
import { live } from './live'
import { ApiError, BASE, apiUrl, request, keepCsrf, whenSignedOut } from './requests'
import { shared } from './rows'
import type { Session } from './types'

export type SessionState =
  | { status: 'loading' }
  | { status: 'in'; session: Session }
  | { status: 'out'; methods: string[]; expired: boolean }
  | { status: 'failed'; error: string }

let state: SessionState = { status: 'loading' }
const listeners = new Set<() => void>()

function set(next: SessionState): void {
  state = next
  for (const listener of listeners) listener()
}

function signedOut(methods: string[]): void {
  live.stop()
  const before = state.status === 'out' ? state : { methods: [], expired: false }
  set({ status: 'out', methods: methods.length ? methods : before.methods, expired: state.status === 'in' || before.expired })
}

whenSignedOut(signedOut)
live.onExpired = () => {
  signedOut([])
  void load()
}
// a stream that is refused may be one whose session has ended
live.onRefused = () => void load()

export async function load(): Promise<void> {
  try {
    const session = await request<Session>('api/session')
    keepCsrf(session.csrf)
    set({ status: 'in', session: state.status === 'in' ? shared(state.session, session) : session })
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return // the login page is shown already
    if (state.status !== 'in') set({ status: 'failed', error: error instanceof Error ? error.message : String(error) })
  }
}

export async function signIn(token: string): Promise<void> {
  await request('api/session', { method: 'POST', body: { token }, csrf: 'login' })
  await load()
}

export async function signOut(): Promise<void> {
  await request('api/session', { method: 'DELETE' })
  signedOut([])
  await load()
}

/** The sign-in with an issuer, which leads back to this page: the server takes pages below its base only. */
export function oidcUrl(): string {
  const page = (location.pathname + location.search).slice(BASE.pathname.length)
  return `${apiUrl('api/login/oidc')}?next=${encodeURIComponent(page)}`
}

export function useSessionState(): SessionState {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => state,
  )
}

/** The session; only below the login page, where there is one. */
export function useSession(): Session {
  const found = useSessionState()
  if (found.status !== 'in') throw new Error('this needs a session')
  return found.session
}
