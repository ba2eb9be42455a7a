/** Boxes of pages, empty states and messages. */
import { useEffect, useRef, useState, type ReactNode } from 'react'
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
export function AnswerContent<T>({ answer, children }: { answer: { data: T | undefined; error: ApiError | undefined; again: () => void }; children: (data: T) => ReactNode }) {
  if (answer.data !== undefined) return <>{children(answer.data)}</>
  if (answer.error) return <Failure error={answer.error} again={answer.again} />
  return <p className="quiet small">The answer is on its way.</p>
}

/** What may be wider than the page scrolls in itself; the keyboard reaches it only where there is something to scroll. */
export function Scroll({ label, children }: { label: string; children: ReactNode }) {
  const box = useRef<HTMLDivElement>(null)
  const [scrolls, setScrolls] = useState(false)
  useEffect(() => {
    const element = box.current
    if (!element) return
    const watching = new ResizeObserver(() => setScrolls(element.scrollWidth > element.clientWidth + 1))
    watching.observe(element)
    for (const child of element.children) watching.observe(child)
    return () => watching.disconnect()
  }, [])
  return (
    <div className="table-box" ref={box} {...(scrolls ? { tabIndex: 0, role: 'group', 'aria-label': label } : {})}>
      {children}
    </div>
  )
}

/** A panel whose content is an answer. */
export function Answered<T>({ title, aside, className, answer, children }: { title: string; aside?: ReactNode; className?: string; answer: { data: T | undefined; error: ApiError | undefined; again: () => void }; children: (data: T) => ReactNode }) {
  return (
    <Panel title={title} aside={aside} {...(className ? { className } : {})}>
      <AnswerContent answer={answer}>{children}</AnswerContent>
    </Panel>
  )
}
