/** Commands to copy: whoever likes terminals better finds there what the page shows or does. */
import { useEffect, useState } from 'react'
import { Icon } from './icons'

export function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false)
  useEffect(() => {
    if (!copied) return
    const timer = setTimeout(() => setCopied(false), 1500)
    return () => clearTimeout(timer)
  }, [copied])
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text)
      setCopied(true)
    } catch {
      // a page without TLS may not write to the clipboard: the text can be marked
    }
  }
  return (
    <div className="command">
      <code tabIndex={0}>{text}</code>
      <button type="button" className="button" onClick={() => void copy()} aria-label={copied ? 'The command is copied' : `Copy the command ${text}`}>
        <Icon name={copied ? 'check' : 'copy'} />
      </button>
    </div>
  )
}

export function Commands({ texts }: { texts: string[] }) {
  return (
    <div className="commands">
      {texts.map((text) => (
        <Command key={text} text={text} />
      ))}
    </div>
  )
}

/** A word of a shell command, in quotes where it needs them. */
export function quoted(word: string): string {
  return /^[\w./:=@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`
}
