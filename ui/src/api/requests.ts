/** Requests to the server: one place for the address, the CSRF header and errors. */

export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    /** the right that the user lacks, "" where that isn't it */
    readonly missing = '',
    readonly retryAfter: number | null = null,
  ) {
    super(message)
  }
}

/** The page's base, below which the dashboard is served; always with a slash at its end. */
export const BASE = new URL('.', document.baseURI)

export function apiUrl(path: string): string {
  return new URL(path, BASE).href
}

let csrf = ''
let onSignedOut: (methods: string[]) => void = () => undefined
let serverClockOffset = 0

export function keepCsrf(token: string): void {
  csrf = token
}

export function whenSignedOut(act: (methods: string[]) => void): void {
  onSignedOut = act
}

/** Seconds by which the server's clock is ahead of this browser's; 0 where they agree within two seconds. */
export function clockOffset(): number {
  return serverClockOffset
}

function noteDate(response: Response): void {
  const date = Date.parse(response.headers.get('date') ?? '')
  if (Number.isNaN(date)) return
  const offset = (date - Date.now()) / 1000 + 0.5
  serverClockOffset = Math.abs(offset) > 2 ? offset : 0
}

interface Options {
  method?: 'GET' | 'POST' | 'DELETE'
  body?: unknown
  signal?: AbortSignal
  csrf?: string
}

export async function request<T>(path: string, options: Options = {}): Promise<T> {
  const { method = 'GET', body, signal } = options
  const headers: Record<string, string> = { accept: 'application/json' }
  if (method !== 'GET') headers['x-gangline-csrf'] = options.csrf ?? csrf
  if (body !== undefined) headers['content-type'] = 'application/json'
  let response: Response
  try {
    response = await fetch(apiUrl(path), {
      method,
      headers,
      credentials: 'same-origin',
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal ? { signal } : {}),
    })
  } catch (error) {
    if (signal?.aborted) throw error
    throw new ApiError('The dashboard’s server does not answer.', 0)
  }
  noteDate(response)
  if (response.ok) return response.status === 204 ? (undefined as T) : ((await response.json()) as T)
  const fault = await readError(response)
  if (response.status === 401) onSignedOut(fault.login)
  throw new ApiError(fault.error, response.status, fault.missing, fault.retryAfter)
}

async function readError(response: Response) {
  let body: { error?: unknown; missing?: unknown; login?: unknown } = {}
  try {
    body = (await response.json()) as typeof body
  } catch {
    // a proxy's page: its text says nothing to the reader
  }
  const after = Number(response.headers.get('retry-after'))
  return {
    error: typeof body.error === 'string' ? body.error : sentenceOf(response.status),
    missing: typeof body.missing === 'string' ? body.missing : '',
    login: Array.isArray(body.login) ? body.login.filter((each) => typeof each === 'string') : [],
    retryAfter: after > 0 ? after : null,
  }
}

function sentenceOf(status: number): string {
  if (status === 401) return 'Nobody is signed in.'
  if (status === 403) return 'Your rights do not allow this.'
  if (status === 404) return 'The server does not know this.'
  if (status === 429) return 'The server has too many questions to answer. The page asks again in a moment.'
  if (status >= 500) return `The server failed with status ${status}.`
  return `The server refused the request with status ${status}.`
}
