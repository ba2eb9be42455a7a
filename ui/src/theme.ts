/** Dark or light: as the system says, or as the reader chose in this browser. */
import { useSyncExternalStore } from 'react'

export type ThemeChoice = 'system' | 'light' | 'dark'
const KEY = 'gangline.theme'
const dark = matchMedia('(prefers-color-scheme: dark)')
const listeners = new Set<() => void>()

function stored(): ThemeChoice {
  try {
    const found = localStorage.getItem(KEY)
    return found === 'light' || found === 'dark' ? found : 'system'
  } catch {
    return 'system' // a browser that keeps nothing
  }
}

let choice = stored()

export function theme(): 'light' | 'dark' {
  return choice === 'system' ? (dark.matches ? 'dark' : 'light') : choice
}

function apply(): void {
  document.documentElement.dataset['theme'] = theme()
  for (const listener of listeners) listener()
}

export function choose(next: ThemeChoice): void {
  choice = next
  try {
    localStorage.setItem(KEY, next)
  } catch {
    // it holds until the page is left
  }
  apply()
}

dark.addEventListener('change', apply)
apply()

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export function useThemeChoice(): ThemeChoice {
  return useSyncExternalStore(subscribe, () => choice)
}

/** For what is drawn on a canvas, which has to be drawn again. */
export function useTheme(): 'light' | 'dark' {
  return useSyncExternalStore(subscribe, theme)
}
