import { useState, type SubmitEvent } from 'react'
import { load, oidcUrl, signIn } from '../api/session'
import { Command } from '../parts/commands'
import { Mark } from '../parts/icons'

export function Login({ methods, expired }: { methods: string[]; expired: boolean }) {
  const [token, setToken] = useState('')
  const [error, setError] = useState('')
  const [busy, setBusy] = useState(false)
  const submit = async (event: SubmitEvent) => {
    event.preventDefault()
    setBusy(true)
    setError('')
    try {
      await signIn(token.trim())
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure))
    }
    setBusy(false)
  }
  const byToken = methods.includes('token')
  const byOidc = methods.includes('oidc')
  return (
    <main className="login">
      <title>Sign in · Gangline</title>
      <form onSubmit={(event) => void submit(event)}>
        <h1 className="brand">
          <Mark /> Gangline
        </h1>
        {expired && <p role="status">Your session has ended. After you sign in, this page opens where you were.</p>}
        {byOidc && (
          <a className="button main-action" href={oidcUrl()}>
            Sign in with your organisation’s account
          </a>
        )}
        {byToken && (
          <>
            <label>
              {byOidc ? 'Or paste a token of the cluster' : 'Paste a token of the cluster'}
              <input className="input mono" type="password" name="token" autoComplete="off" value={token} onChange={(event) => setToken(event.target.value)} aria-describedby="token-help" />
            </label>
            <button type="submit" className={byOidc ? 'button' : 'button main-action'} disabled={!token.trim() || busy}>
              Sign in
            </button>
            <div className="quiet small" id="token-help">
              The dashboard passes the token to the API server, and has your rights only. This command makes one:
            </div>
            <Command text="kubectl create token NAME -n NAMESPACE" />
          </>
        )}
        {!byOidc && !byToken && (
          <>
            <p>This dashboard runs on a laptop. It opens with the link that this command prints, once:</p>
            <Command text="gangline ui" />
          </>
        )}
        {error && (
          <p className="notice bad" role="alert">
            {error}
          </p>
        )}
      </form>
    </main>
  )
}

export function Unavailable({ error }: { error: string }) {
  return (
    <main className="login">
      <title>Gangline</title>
      <div className="box">
        <h1 className="brand">
          <Mark /> Gangline
        </h1>
        <p role="alert">{error}</p>
        <button type="button" className="button" onClick={() => void load()}>
          Try again
        </button>
      </div>
    </main>
  )
}
