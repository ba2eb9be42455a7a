import { lazy, Suspense, useEffect } from 'react'
import { Navigate, Route, Routes, useLocation, useSearchParams } from 'react-router'
import { live } from './api/live'
import { useSessionState } from './api/session'
import { Login, Unavailable } from './pages/Login'
import { FailureBoundary } from './parts/failure'
import { Layout } from './parts/layout'
import { namespaceOf } from './namespace'

const Now = lazy(() => import('./pages/Now').then((page) => ({ default: page.Now })))
const Timeline = lazy(() => import('./pages/Timeline').then((page) => ({ default: page.TimelinePage })))
const Jobs = lazy(() => import('./pages/Jobs').then((page) => ({ default: page.Jobs })))
const JobPage = lazy(() => import('./pages/Job').then((page) => ({ default: page.JobPage })))
const Queues = lazy(() => import('./pages/Queues').then((page) => ({ default: page.Queues })))
const Nodes = lazy(() => import('./pages/Nodes').then((page) => ({ default: page.Nodes })))
const Trust = lazy(() => import('./pages/Trust').then((page) => ({ default: page.Trust })))
const Use = lazy(() => import('./pages/Use').then((page) => ({ default: page.Use })))
const Operator = lazy(() => import('./pages/Operator').then((page) => ({ default: page.Operator })))

export function App() {
  const state = useSessionState()
  const [params] = useSearchParams()
  const { pathname } = useLocation()
  const namespace = state.status === 'in' ? namespaceOf(params, state.session) : null

  useEffect(() => {
    if (namespace !== null) live.follow(namespace)
  }, [namespace])

  if (state.status === 'loading') return null
  if (state.status === 'failed') return <Unavailable error={state.error} />
  if (state.status === 'out') return <Login methods={state.methods} expired={state.expired} />
  return (
    <Layout>
      <FailureBoundary place={pathname}>
        <Suspense fallback={null}>
          <Routes>
            <Route path="/" element={<Home />} />
            <Route path="/now" element={<Now />} />
            <Route path="/timeline" element={<Timeline />} />
            <Route path="/jobs" element={<Jobs />} />
            <Route path="/jobs/:namespace/:kind/:name" element={<JobPage />} />
            <Route path="/queues" element={<Queues />} />
            <Route path="/nodes" element={<Nodes />} />
            <Route path="/trust" element={<Trust />} />
            <Route path="/use" element={<Use />} />
            <Route path="/operator" element={<Operator />} />
            <Route path="*" element={<NoSuchPage />} />
          </Routes>
        </Suspense>
      </FailureBoundary>
    </Layout>
  )
}

function Home() {
  const [params] = useSearchParams()
  return <Navigate to={{ pathname: '/now', search: params.toString() }} replace />
}

function NoSuchPage() {
  return (
    <>
      <h1>No such page</h1>
      <p>The dashboard has no page at this address. The menu lists its pages.</p>
    </>
  )
}
