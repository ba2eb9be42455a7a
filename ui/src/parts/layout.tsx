/** What stands around every page: where one is, whose cluster this is, how old the data are, and keys. */
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { NavLink, useLocation, useNavigate } from 'react-router'
import { useLive } from '../api/live'
import { signOut, useSession } from '../api/session'
import { useNow } from '../clock'
import { choose, theme, useTheme, useThemeChoice } from '../theme'
import { useLinks, useNamespace, useView } from '../view'
import { duration } from '../words'
import { DialogBox, MenuButton } from './dialogs'
import { Icon, Mark, type IconName } from './icons'

interface PageEntry {
  path: string
  name: string
  icon: IconName
  key: string
}

const PAGES: readonly PageEntry[] = [
  { path: '/now', name: 'Now', icon: 'now', key: 'w' },
  { path: '/timeline', name: 'Timeline', icon: 'timeline', key: 'l' },
  { path: '/jobs', name: 'Jobs', icon: 'jobs', key: 'j' },
  { path: '/queues', name: 'Queues', icon: 'queues', key: 'q' },
  { path: '/nodes', name: 'Nodes', icon: 'nodes', key: 'n' },
  { path: '/trust', name: 'Trust', icon: 'trust', key: 't' },
  { path: '/use', name: 'Use', icon: 'use', key: 'u' },
  { path: '/operator', name: 'Operator', icon: 'operator', key: 'o' },
]

const STALE_AFTER = 15

export function Layout({ children }: { children: ReactNode }) {
  const [help, setHelp] = useState(false)
  const links = useLinks()
  const main = useRef<HTMLElement>(null)
  const nav = useRef<HTMLElement>(null)
  const { pathname } = useLocation()
  const page = PAGES.find((each) => pathname.startsWith(each.path))
  useKeys(() => setHelp(true))

  const before = useRef(pathname)
  useEffect(() => {
    const last = before.current
    before.current = pathname
    if (last === pathname || last === '/') return
    window.scrollTo(0, 0)
    main.current?.focus({ preventScroll: true })
  }, [pathname])

  useEffect(() => {
    nav.current?.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' })
  }, [pathname])

  return (
    <div className="frame">
      <title>{titleOf(pathname, page?.name)}</title>
      <a className="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus() }}>
        Skip to the content
      </a>
      <Top onHelp={() => setHelp(true)} />
      <nav className="nav" aria-label="Pages" ref={nav}>
        <ul>
          {PAGES.map((each) => (
            <li key={each.path}>
              <NavLink to={links.to(each.path)}>
                <Icon name={each.icon} />
                {each.name}
              </NavLink>
            </li>
          ))}
        </ul>
      </nav>
      <main className="main" id="main" ref={main} tabIndex={-1}>
        <TroubleBar />
        <Rows>{children}</Rows>
      </main>
      <HelpDialog open={help} onClose={() => setHelp(false)} />
    </div>
  )
}

function titleOf(path: string, page: string | undefined): string {
  const [, , , kind, name] = path.split('/')
  const what = kind && name ? `${decodeURIComponent(kind)}/${decodeURIComponent(name)}` : page
  return what ? `${what} · Gangline` : 'Gangline'
}

function Top({ onHelp }: { onHelp: () => void }) {
  const session = useSession()
  const links = useLinks()
  const choice = useThemeChoice()
  const look = useTheme()
  const themes = [['system', 'As the system'], ['light', 'Light'], ['dark', 'Dark']] as const
  return (
    <header className="top">
      <NavLink className="brand" to={links.to('/now')} aria-label="Gangline, now">
        <Mark /> <span>Gangline</span>
      </NavLink>
      <span className="cluster clip">{session.cluster}</span>
      <NamespacePicker />
      <span className="space" />
      <Age />
      <button type="button" className="button plain icon" onClick={onHelp} aria-label="Keys and help" title="Keys and help (?)">
        ?
      </button>
      <MenuButton
        name="Colours" label={<Icon name={look === 'dark' ? 'moon' : 'sun'} />} className="button plain icon" single chosen={new Set([choice])}
        choices={themes.map(([id, word]) => ({ id, word, text: word }))} onChoose={(id) => choose(id as (typeof themes)[number][0])}
      />
      <MenuButton
        name={`Signed in as ${session.user}`} label={<><span className="person"><Icon name="person" /></span><span className="clip who">{session.user}</span></>} className="button plain"
        choices={[{ id: 'out', word: 'Sign out', text: session.login === 'none' || session.login === 'laptop' ? 'End this session' : 'Sign out' }]}
        onChoose={() => void signOut()}
      />
    </header>
  )
}

function NamespacePicker() {
  const session = useSession()
  const namespace = useNamespace()
  const view = useView()
  const choices = [...(session.all ? [''] : []), ...session.namespaces]
  if (choices.length < 2) return <span className="quiet clip">{namespace}</span>
  if (!choices.includes(namespace)) choices.push(namespace)
  const usual = session.all ? '' : session.namespace
  return (
    <label className="field">
      <span className="unseen">Namespace</span>
      <select className="select" value={namespace} onChange={(event) => view.set({ ns: event.target.value === usual ? '' : event.target.value })}>
        {choices.map((each) => (
          <option key={each} value={each}>
            {each || 'Whole cluster'}
          </option>
        ))}
      </select>
    </label>
  )
}

function Age() {
  const at = useLive((state) => state.at)
  const now = useNow(1)
  if (!at) return <span className="age" data-stale="true">no data yet</span>
  const age = Math.max(0, now - at)
  const stale = age > STALE_AFTER
  return (
    <span className="age" data-stale={stale} title="How long ago the leading operator looked at the cluster">
      {stale ? `stale: ${duration(age)} old` : `${Math.round(age)}s old`}
    </span>
  )
}

/** Rows of which nobody knows whether they still hold are greyed. */
function Rows({ children }: { children: ReactNode }) {
  const trouble = useLive((state) => state.trouble !== null)
  const at = useLive((state) => state.at)
  const now = useNow(5)
  return <div className={trouble || (at > 0 && now - at > STALE_AFTER) ? 'page stale-rows' : 'page'}>{children}</div>
}

function TroubleBar() {
  const trouble = useLive((state) => state.trouble)
  if (!trouble) return null
  return (
    <div className="trouble" role="status">
      <strong>{trouble.error}</strong>
      <span>What you see is the last known state. The page goes on by itself as soon as it can.</span>
    </div>
  )
}

// --- keys ---

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
}

function useKeys(onHelp: () => void): void {
  const navigate = useNavigate()
  const links = useLinks()
  useEffect(() => {
    let went = 0
    const onKey = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return
      if (event.key === 'Escape' && event.target instanceof HTMLInputElement) event.target.blur()
      const inSearch = event.target instanceof HTMLInputElement && event.target.type === 'search'
      if ((event.key === 'ArrowDown' && inSearch) || (/^(j|ArrowDown)$/.test(event.key) && Date.now() - went >= 1500 && document.activeElement === document.body)) {
        // from the search, or from nowhere, into the page's table
        const row = document.querySelector<HTMLElement>('.main tr[data-index] :is(a, button)')
        if (!row) return
        event.preventDefault()
        row.focus()
        return
      }
      if (isTyping(event.target) || document.querySelector('[role="dialog"], [role="alertdialog"], [role="menu"]')) return
      if (Date.now() - went < 1500) {
        went = 0
        const page = PAGES.find((each) => each.key === event.key)
        if (page) {
          event.preventDefault()
          event.stopPropagation()
          void navigate(links.to(page.path))
        }
      } else if (event.key === 'g') {
        went = Date.now()
      } else if (event.key === '?') {
        onHelp()
      } else if (event.key === 'd') {
        choose(theme() === 'dark' ? 'light' : 'dark')
      } else if (event.key === '/') {
        const search = document.querySelector<HTMLInputElement>('input[type="search"]')
        if (!search) return
        event.preventDefault()
        search.focus()
        search.select()
      }
    }
    // before the table sees the key: `g j` is not `j`
    document.addEventListener('keydown', onKey, true)
    return () => document.removeEventListener('keydown', onKey, true)
  }, [navigate, links, onHelp])
}

const OTHER_KEYS: readonly [string[], string][] = [
  [['/'], 'Search'],
  [['↓', '↑'], 'Next or previous row of a table (also j and k)'],
  [['Enter'], 'Open what has the focus'],
  [['x'], 'Select the row, or take that back'],
  [['w', 'W'], 'Timeline: “what if” of the job; of its queue’s quota or its node'],
  [['[', ']'], 'Timeline: the decision before, the next decision'],
  [['n', 't'], 'Timeline: to now; the same as a table'],
  [['d'], 'Dark or light'],
  [['Esc'], 'Close a dialog or a menu, or leave the search'],
  [['?'], 'This help'],
]

function HelpDialog({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <DialogBox title="Keys and help" open={open} onClose={onClose}>
      <div className="grid">
        <dl className="facts">
          {PAGES.map((page) => (
            <Key key={page.path} keys={['g', page.key]} means={page.name} />
          ))}
        </dl>
        <dl className="facts">
          {OTHER_KEYS.map(([keys, means]) => (
            <Key key={means} keys={keys} means={means} />
          ))}
        </dl>
      </div>
      <p className="quiet">
        Times are given twice. The first is as likely too early as too late. The second holds nine times in ten. Every view has an address of its
        own, so a bookmark brings it back.
      </p>
      <footer>
        <button type="button" className="button" onClick={onClose}>
          Close
        </button>
      </footer>
    </DialogBox>
  )
}

function Key({ keys, means }: { keys: string[]; means: string }) {
  return (
    <>
      <dt>
        {keys.map((key) => (
          <span key={key}>
            <kbd>{key}</kbd>{' '}
          </span>
        ))}
      </dt>
      <dd>{means}</dd>
    </>
  )
}
