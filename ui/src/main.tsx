import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { BrowserRouter } from 'react-router'
import './style.css'
import './theme'
import { BASE } from './api/requests'
import { load } from './api/session'
import { App } from './App'

void load()
const root = document.getElementById('root')
if (root) {
  createRoot(root).render(
    <StrictMode>
      <BrowserRouter basename={BASE.pathname.replace(/\/$/, '')}>
        <App />
      </BrowserRouter>
    </StrictMode>,
  )
}
