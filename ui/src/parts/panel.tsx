/** Boxes of pages, empty states and messages. */
import type { ReactNode } from 'react'
import type { ApiError } from '../api/requests'

export function Panel({ title, aside, children, flush = false, className = '' }: { title: string; aside?: ReactNode; children: ReactNode; flush?: boolean; className?: string }) {
  return (
    <section className={`panel ${className}`} aria-label={title}>
      <header>
        <h2>{title}</h2>
        <span className="space" />
        {aside}
      </header>
      <div className={flush ? 'body flush' : 'body'}>{children}</div>
    </section>
  )
}

export function Failure({ error, again }: { error: ApiError; again?: () => void }) {
  return (
    <p className="notice bad" role="status">
      {error.message} {error.missing && <>You lack the right to {error.missing}. </>}
      {again && (
        <button type="button" className="button" onClick={again}>
          Ask again
        </button>
      )}
    </p>
  )
}

export function Empty({ children }: { children: ReactNode }) {
  return <div className="empty">{children}</div>
}

/** An answer's content, its failure, or that it is on its way. */
export function Told<T>({ answer, children }: { answer: { data: T | undefined; error: ApiError | undefined; again: () => void }; children: (data: T) => ReactNode }) {
  if (answer.data !== undefined) return <>{children(answer.data)}</>
  if (answer.error) return <Failure error={answer.error} again={answer.again} />
  return <p className="quiet small">The answer is on its way.</p>
}
